"""The owner of a table of slots, in place of `onbeat shape`: writes a heartbeat, and takes the reports.

usage: owner.py DIRECTORY CYCLE_NS
"""

import os
import sys
import time

from page import Page


def main():
    """Beats until it is killed."""
    directory, cycle_ns = sys.argv[1], int(sys.argv[2])
    page = Page(os.path.join(directory, "page"))
    reports = os.open(os.path.join(directory, "reports"), os.O_RDONLY | os.O_NONBLOCK)
    while os.getppid() != 1:
        page.beat()
        try:
            os.read(reports, 1 << 16)
        except BlockingIOError:
            pass
        time.sleep(cycle_ns / 4e9)


main()
