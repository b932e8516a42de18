"""The contract between bundle and boards: manifest, wire protocol, templates and the C runtime."""
