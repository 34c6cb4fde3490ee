"""The public surfaces of the project, each dumped as text and compared with its golden file in `golden/`.

A surface is what users, their programs and their dashboards rely on: names, types, bounds, exit statuses, the texts of
wrong settings. Descriptions for people (HELP texts, help of flags, titles of fields) are left out.

`python -m tests.surfaces` rewrites the golden files. A change of a golden file is a change of the public interface.
"""
