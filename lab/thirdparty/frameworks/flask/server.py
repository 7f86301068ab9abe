"""Flask's own first example, served by waitress as its documentation says.

usage: server.py PORT
"""

import sys

from flask import Flask
from waitress import serve

app = Flask(__name__)


@app.route("/")
def hello_world() -> str:
    return "<p>Hello, World!</p>"


if __name__ == "__main__":
    serve(app, listen=f"127.0.0.1:{sys.argv[1]}")
