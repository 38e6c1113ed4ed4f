"""The loop: plan, measure, fit, recommend, validate, report; and the files that it leaves in the output folder."""
