from distrun.bundle import archive
from distrun.bundle.archive import make_redactor, opened
from distrun.redaction.redactor import Redactor, own_words, secret_values
from distrun.report import plots
from distrun.report.comparison import Run, render, steps_of
from distrun.report.flame import read_flames
from distrun.report.outliers import Measure, outliers
from distrun.report.page import Report
from distrun.report.series import panels, thinned
from distrun.report.server import LivePage, PageServer
