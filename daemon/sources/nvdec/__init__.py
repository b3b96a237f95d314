"""Decoding on the GPU's own engines (NVDEC) through PyNvVideoCodec: pictures never leave the device."""
