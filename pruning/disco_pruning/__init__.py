"""DISCO pruning in PyTorch: ownership masks, pruning rounds, baking, ONNX export."""
