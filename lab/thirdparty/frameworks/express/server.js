// Express' own first example, on a port of the command line.
const express = require('express')
const app = express()

app.get('/', (req, res) => {
	res.send('Hello World!')
})

app.listen(Number(process.argv[2]), '127.0.0.1')
