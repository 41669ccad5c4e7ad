"""The watermark algorithm: chunks, splits, and which change is applied to which split."""
