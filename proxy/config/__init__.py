"""The settings of the sidecar.

- `model`: all settings
- `loading`: reads the settings from flags, environment and file
- `sections`, `listener_sections`, `limits_section`, `gateway_section`, `own_connection`: the settings of each section,
  with bounds and defaults
- `paths`: settings that name a file or a folder
- `misspelt_variables`: environment variables that look like settings and are none
- `errors`: the error lines, one for each invalid setting
- `effective`: the settings in force as plain values, without secrets
- `reload`: which settings can change while the sidecar runs
- `page`: prints docs/configuration.md
"""
