"""What the files in the output folder are called."""

PROFILE, CALIBRATION = "profile.json", "calibration.json"
RECOMMENDATION, VALIDATION, REPORT = "recommendation.json", "validation.json", "report.html"
PARITY = "parity.json"
