"""Run a bundle on boards from a PC: flash, exchange frames, check outputs, capture latency."""
