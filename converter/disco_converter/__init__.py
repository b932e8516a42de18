"""From a model (ONNX or int8 TFLite) to a bundle: one slice of the network for each node."""
