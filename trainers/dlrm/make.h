/* dlrm --make-schema FILE --data LOG: writes a schema for a log that has none. */
#ifndef DLRM_MAKE_H
#define DLRM_MAKE_H

/* The whole program, if its command line has --make-schema; its exit status. */
int dlrm_make_run(int argc, char **argv);

#endif
