"""The TensorRT backend over stand-ins for the driver and for TensorRT: run by tests/detectors/test_trt.py, in processes
that have them."""
