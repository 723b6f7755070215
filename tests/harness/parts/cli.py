from distrun.cli import batch_run, kill, main, output, resume, signals, terminal, wait
from distrun.cli.launch_view import LaunchView
from distrun.cli.output_file import write_file
from distrun.cli.plan_view import show_plan
from distrun.cli.profile import network_lines, profile_view, speedscope
from distrun.cli.ps import print_messages
from distrun.cli.report import make_page
from distrun.cli.stacks import problems
from distrun.cli.transfer_bar import TransferBar
from distrun.cli.watch_screen import WatchApp
