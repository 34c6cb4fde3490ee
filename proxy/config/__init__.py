"""The settings of the sidecar.

- `model`: all settings, and where they are read from: flags, environment, file
- `sections`: the settings of each section, with bounds and defaults
- `errors`: one line for each invalid setting
- `reload`: which settings can change while the sidecar runs
- `page`: prints docs/configuration.md
"""
