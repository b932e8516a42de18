/* Status codes of the disco runtime. Every function that can fail returns one; results go through out parameters. */
#ifndef DISCO_STATUS_H
#define DISCO_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* The values are sent to the host (message ERROR) and mirrored in disco_firmware/protocol.py: append, never renumber. */
typedef enum {
    DISCO_OK = 0,              /* done */
    DISCO_BUSY = 1,            /* not now (transmit window full, nothing received yet); try again after polling */
    DISCO_ERR_ARGUMENT = 2,    /* a caller's argument is out of its documented range */
    DISCO_ERR_TIMEOUT = 3,     /* a deadline passed; the report names what was awaited */
    DISCO_ERR_PROTOCOL = 4,    /* a well-formed frame that makes no sense in this state */
    DISCO_ERR_VERSION = 5,     /* the peer speaks another protocol version */
    DISCO_ERR_BUNDLE = 6,      /* the peer was built from another bundle */
    DISCO_ERR_PEER = 7,        /* the peer is not the node that this line should lead to */
    DISCO_ERR_UNSUPPORTED = 8, /* the model names an operator that this runtime lacks */
    DISCO_ERR_PORT = 9,        /* the board's port layer failed */
    DISCO_ERR_LINE = 10        /* the line to the peer broke */
} disco_status_t;

#if defined(__GNUC__) || defined(__clang__)
#define DISCO_MUST_CHECK __attribute__((warn_unused_result))
/* Keeps a function that saves and restores many registers out of a caller that seldom calls it. */
#define DISCO_APART __attribute__((noinline))
#else
#define DISCO_MUST_CHECK
#define DISCO_APART
#endif

#ifdef __cplusplus
}
#endif

#endif
