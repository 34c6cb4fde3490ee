"""The settings of the sidecar.

- `model`: all settings, and their sources: flags, environment, file
- `sections`: the settings of each section, with bounds and defaults; `own_connection`: the settings of that section
- `errors`: the error lines, one for each invalid setting
- `reload`: which settings can change while the sidecar runs
- `page`: prints docs/configuration.md
"""
