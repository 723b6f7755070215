from distrun.lint import rules
from distrun.lint.check import check_program
from distrun.lint.program import Program
from distrun.lint.rules import RULES, check, imported_modules
