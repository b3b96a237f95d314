"""Decoding on the GPU's own engines (NVDEC) by the driver's own library: pictures never leave the device.

- Trial. A driver may end the process that asks it for a decoder, so one is tried in a process of its own first
  (`nvdec/trial.py`).
- Library (`nvdec/nvcuvid.py`): libnvcuvid, which comes with the driver, by ctypes. Its parser finds pictures in
  packets and gives them their times, in the order of showing. No thread waits in the driver: a picture is
  submitted, and asked about.
- Session (`nvdec/session.py`): one decoder, its stream and its surfaces. The thread of a live source sleeps until
  its picture is likely to be done, because each look costs a handover of the interpreter's lock. Pictures are
  copied from the decoder's memory in the decoder's own stream, so no thread waits. A lane's stream waits for the
  surface's event, where lane and decoder are one process. A surface is returned when the last user of its picture
  releases it (`leases.py`). There are as many as can be on their way at once, and the plan counts them.
- Pool (`nvdec/pool.py`): sessions are kept over reconnects and loops, by codec and parameter sets. A stream whose
  parameters change gets another, because each is made for one form of picture. There are never more sessions than
  sources were connected at once. The plan takes a source's memory from codec and size, and corrects it when its
  parameters have been seen: those say how many pictures its decoder keeps.
- The CPU's pictures (`nvdec/upload.py`). FFmpeg decodes streams that the GPU's decoder does not take. The thread
  that has decoded a picture brings it to the GPU as NV12, through pinned memory of its source, so a lane finds it
  like all others. This is for 8-bit 4:2:0 alone. Other pictures stay in host memory as BGR, and so do those of
  `decode: cpu`. A recording that falls to the CPU leaves the few threads that keep the decoder busy for one of its
  own (`capture/threads.py`).
"""
