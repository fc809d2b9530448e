"""Looks into compiled models: what each kernel computes, how fast it is, and how good the model's predictions are."""
