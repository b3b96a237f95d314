"""Man pages and the files that complete commands, made from the code: `python -m tests.manual FOLDER`."""
