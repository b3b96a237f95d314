"""Words for people who get an evidence folder, and know nothing of Lookout: its README.txt."""

from __future__ import annotations

from daemon.clock import offset_text
from daemon.recording.evidence.manifest import Manifest
from daemon.redact import printable

_SIGNED = """\
   SHA256SUMS is signed. OpenSSL 3 checks it:

     openssl pkeyutl -verify -pubin -inkey public-key.pem -rawin -in SHA256SUMS -sigfile SHA256SUMS.sig

   The key in this folder proves nothing by itself, since everybody can make one. Ask the owner of the cameras for
   the public key, or for its fingerprint, on another way. The fingerprint of this one is

     {fingerprint}

   and this shows it:  openssl pkey -pubin -in public-key.pem -outform DER | sha256sum
"""
_UNSIGNED = """\
   This folder is not signed. Whoever made it was shown the SHA-256 of the file SHA256SUMS. Ask for it, and compare:

     sha256sum SHA256SUMS
"""
_TEXT = """\
Evidence of the camera "{source}"
{line}

asked for     {begin}
        to    {end}
made          {made} by {made_by}, with Lookout {lookout}
recordings    {count}, {size:.1f} MB; they are whole files of a minute, so they begin and end beyond the time above
store         {store}
{trouble}
How to check it
---------------
Nothing of Lookout is needed: `sha256sum` is on every Linux, and `ffplay` comes with FFmpeg.

1. Open a terminal in this folder, and say

     sha256sum -c SHA256SUMS

   Each line must end with OK. A file that is not in the list does not belong here.

2. Check where the list comes from.

{signature}
3. Look at the video. The files lie in the folder `video`, by day and by the time of day at which they begin, UTC.

     ffplay video/{example}

With Lookout one command does the first two steps, and names the seconds of video that were changed, if any were:

     lookout recordings verify FOLDER{public}

What lies here
--------------
video/           the recordings, byte for byte as they lay in the store; beside them .trk files with what was detected
timeline.json    the seconds that are recorded, and those that are not, each with its cause
locks.json       times that somebody has locked
events.json      events in this time, from the journal{events}
settings.json    the settings of the camera without its passwords{settings}
manifest.json    versions, models, clock, SHA-256 of each file, and the chain of SHA-256 through the recordings
SHA256SUMS       the SHA-256 of each file

All times in these files are nanoseconds since 1970, UTC.

What it proves, and what it does not
------------------------------------
- Nothing in this folder was changed since it was made, if step 2 leads to somebody whom you believe.
- Each fragment of video, of about a second, has a SHA-256 that goes on from the one before. So nothing was removed
  between two fragments, or changed in one, after it had been written, unless all that follows was made anew.
- Nobody can prove what stood before the camera.
- Who holds the key can sign anything. Who may write to the store can make all of it anew.
- The time of a picture is the time of day at which it arrived. {clock}
- Packets are as the camera sent them. What the camera itself has signed (ONVIF, Axis) is still in them.
"""


def readme(manifest: Manifest, *, has_events: bool, has_settings: bool) -> bytes:
    """In plain words."""
    recordings = [row for row in manifest.files if row.kind == "video"]
    zone = manifest.zone

    def text(at: int) -> str:
        utc = offset_text(at, 0).replace("+00:00", " UTC")
        return f"{offset_text(at, zone.offset_s)} ({zone.name}), {utc}"

    title = f'Evidence of the camera "{printable(manifest.source)}"'
    fingerprint = manifest.signed_by
    words = _TEXT.format(
        source=printable(manifest.source),
        line="=" * len(title),
        begin=text(manifest.begin),
        end=text(manifest.end),
        made=text(manifest.made_at),
        made_by=printable(manifest.made_by),
        lookout=manifest.lookout,
        count=len(recordings),
        size=sum(row.bytes for row in recordings) / 1e6,
        store=manifest.store,
        trouble=_trouble(manifest),
        signature=_SIGNED.format(fingerprint=fingerprint) if fingerprint else _UNSIGNED,
        example=recordings[0].path.partition("/")[2] if recordings else "",
        public=" --public-key FILE" if fingerprint else "",
        events="" if has_events else " (there is none)",
        settings="" if has_settings else " (they were not to be had)",
        clock=_clock(manifest),
    )
    return words.encode(errors="replace")


def _trouble(manifest: Manifest) -> str:
    lines = [f"- {printable(row.path)}: {row.detail}" for row in manifest.faults]
    lines += [
        f"- a recording ({row.id}) is not here: "
        + ("the limits of the store had deleted it" if row.expired else "it was removed from the store by somebody")
        for row in manifest.missing
    ]
    return "\nThis was not as it should be when the folder was made:\n" + "\n".join(lines) + "\n" if lines else ""


def _clock(manifest: Manifest) -> str:
    errors = {row.clock_error for row in manifest.video}
    told = "How much the clock was off then is not known."
    if None not in errors and errors:
        told = f"By its own account the clock was off by {max(error or 0 for error in errors) / 1e6:.0f} ms at most."
    now = manifest.clock
    if now is None:
        return told
    if not now.synchronised:
        return f"{told}\n  When this folder was made no other clock had set it."
    return f"{told}\n  When this folder was made another clock had set it, to {now.max_error_ns / 1e6:.0f} ms."
