"""What a scan did, as a page for a browser, as a drawing, and in notebooks.

``scan.report("scan.html")`` writes a page. With the requests that opened the table:
``html_report(scan_report(scan, plan=await scan.plan(), records=table.request_log))``.
"""

from coldparquet.report.scan_report import ScanReport, html_report, scan_report, write_report
from coldparquet.report.waterfall_drawing import svg_waterfall

__all__ = ["ScanReport", "html_report", "scan_report", "svg_waterfall", "write_report"]
