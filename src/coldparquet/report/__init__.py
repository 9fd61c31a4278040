"""What a scan did, as a page for a browser and as a drawing.

report = scan_report(scan, plan=await scan.plan())
Path("scan.html").write_text(html_report(report), encoding="utf-8")
"""

from coldparquet.report.scan_report import ScanReport, html_report, scan_report
from coldparquet.report.waterfall_drawing import svg_waterfall

__all__ = ["ScanReport", "html_report", "scan_report", "svg_waterfall"]
