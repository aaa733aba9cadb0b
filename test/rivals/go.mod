module github.com/capi-refit/refit/test/rivals

go 1.26.0

require (
	github.com/capi-refit/refit v0.0.0
	github.com/robfig/cron/v3 v3.0.1
	github.com/stretchr/testify v1.11.1
	github.com/teambition/rrule-go v1.8.2
	pgregory.net/rapid v1.3.0
)

require (
	github.com/arran4/golang-ical v0.3.4 // indirect
	github.com/davecgh/go-spew v1.1.2-0.20180830191138-d8f796af33cc // indirect
	github.com/pmezard/go-difflib v1.0.1-0.20181226105442-5d4384ee4fb2 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace github.com/capi-refit/refit => ../..
