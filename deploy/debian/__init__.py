"""Builds the Debian package: `python -m deploy.debian`. The files for the package are in `files/`.

- `__main__`: the command
- `wheels`: the project and its locked requirements as wheels
- `tree`: the files of the package: a virtual environment at its final path, the unit, the settings, the documentation
- `control`: the package's version and what the package depends on
- `shared_libraries`: the shared libraries that the compiled modules need
"""
