/* The node's main loop: talks to the host, greets the peers, runs the model, reports. */
#ifndef DISCO_NODE_H
#define DISCO_NODE_H

#include "disco/model.h"
#include "disco/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Serves the host until the port fails. Call after disco_port_init. */
DISCO_MUST_CHECK disco_status_t disco_node_serve(const disco_model_t *model);

#ifdef __cplusplus
}
#endif

#endif
