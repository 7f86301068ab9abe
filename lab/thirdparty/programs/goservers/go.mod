module goservers

go 1.19
