"""Measuring tools that more than one check uses: they return numbers and say nothing of what they mean."""
