// Package demand reads the demand that was observed and declared, per pool (region,
// GPU model or machine type, unit): hourly means ([Pools]), histories for forecasts
// ([Histories]), and changes that deployments announce ([Changes]).
package demand
