"""What a fit has to show for itself: draws, alignment, diagnostics, calibration, one page."""
