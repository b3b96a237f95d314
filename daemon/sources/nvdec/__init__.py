"""Decoding on the GPU's own engines (NVDEC) by the driver's own library: pictures never leave the device.

docs/decisions.md says why.
"""
