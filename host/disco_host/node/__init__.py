"""What runs on a Linux node: needs numpy and a TFLite runtime, and neither compiler nor training framework."""
