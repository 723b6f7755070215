from distrun.sync import file_selection, gitignore
from distrun.sync.file_selection import FileSelection, select_files
from distrun.sync.manifest import LinkEntry, Manifest
from distrun.sync.unsent_files import file_beside_script, missing_file
