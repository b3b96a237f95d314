"""Where frames come from, behind one port.

One video of a recording.

FFmpeg shows a recording as streams and packets. Neither says which of them are the pictures that a person would
see. `Demuxer` (`packets.py`) gives the packets of one video, in order, and counts all others.

- Which one (`video_streams.py`). The first video stream that can be decoded, unless it is empty or another one is
  the file's default; then FFmpeg's own choice. An attached picture is never the video.
- Where it goes on (`selection.py`). Packets of another stream are held until it is clear what they are. A stream
  whose time goes on where the read one has stopped is its continuation. A stream that plays beside it is another
  video. Each change ends the decoder's stream with an empty packet, and `ffmpeg.py` begins a decoder, or a stream
  of the same one.
- What FFmpeg hides. It probes streams at the beginning alone. A stream, codec or header that comes later is given
  as packets of the old stream, or not at all. So the file is opened again from the byte where the other thing
  begins, a splice (`splices.py` finds it, `splice_finder.py` decides). Then FFmpeg's own probing sees it. PyAV
  lists streams once, so `NewStreams` asks FFmpeg for its best stream to learn of others.
- Live streams have no bytes to go back to. Another codec, or a video that goes on in a stream that is not shown,
  ends the connection with a reason, and the next one finds it.
- Pictures and packets (`pending.py`, `pictures.py`). Each packet is looked into: it holds no picture, one, or
  several. A packet is without a picture only on positive evidence. Then packets and pictures are compared, so that
  each picture is published, dropped, or known as not shown.
- Times (`timeline.py`). Decoders give pictures in the order of display, so the time of a recording never goes back.
  Where a container has times of decoding alone (AVI), each picture gets the smallest time that is due.
- Whole or not (`completeness.py`, `structure.py`). A length in a header is a claim, and often that of the sound.
  The structure of the file is evidence: its boxes, clusters, chunks, tags and index. The claims decide only where
  structure is silent.

`python -m tests.scan` makes recordings of many containers, codecs and faults, and compares each with `ffprobe`.
"""
