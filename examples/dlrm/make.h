/* dlrm --make-schema FILE --data LOG: writes a schema for a log that has none. */
#ifndef DLRM_MAKE_H
#define DLRM_MAKE_H

/* Is the command line one of --make-schema? */
int dlrm_makes(int argc, char **argv);
/* The program, then. Returns its exit status. */
int dlrm_make_run(int argc, char **argv);

#endif
