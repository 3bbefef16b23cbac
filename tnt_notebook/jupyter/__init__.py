"""What the project needs of Jupyter's packages beyond their public names: known to this room alone.

``ipyparallel``'s client and engine, ``ipykernel``'s subshells and interrupts, IPython's tracebacks.
"""
