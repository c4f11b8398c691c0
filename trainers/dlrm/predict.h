/* dlrm --predict LOG --load DIR: the probability of a click for each sample of a log, by a model that was saved. */
#ifndef DLRM_PREDICT_H
#define DLRM_PREDICT_H

/* The whole program, if its command line has --predict; its exit status. */
int dlrm_predict_run(int argc, char **argv);

#endif
