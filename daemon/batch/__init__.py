"""Archives of recordings, analysed losslessly, by one process or by many that share the clips: one result a clip.

docs/decisions.md says why.
"""
