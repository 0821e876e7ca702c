"""The engine over HTTP: FastAPI and uvicorn, of the extra linrec[serve]."""
