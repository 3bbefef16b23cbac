"""``python -m tnt_notebook.engine``: what mpiexec starts for every rank."""

from tnt_notebook.engine.start import main

if __name__ == "__main__":
    main()
