/* Entry point of a node on any board. */
#include "disco/model.h"
#include "disco/node.h"
#include "disco/port.h"

int main(int argc, char **argv) {
    disco_status_t status = disco_port_init(argc, argv);
    if (status == DISCO_OK) {
        status = disco_node_serve(&disco_model);
    }
    disco_port_fatal(status);
    return 1;
}
