"""The TensorRT backend over stubs of the driver and of TensorRT; tests/detectors/test_trt.py runs it in child processes
that have the stubs."""
