"""What a sweep tries, and what has come of it: settings, Optuna's study, the board that is shown.

Plain data, and Optuna, which is loaded when a sweep begins. It knows neither ranks nor notebook.
"""
