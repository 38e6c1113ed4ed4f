"""Views of what was measured and forecast: terminal, HTML report, engine command lines. Nothing is computed anew."""
