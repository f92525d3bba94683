// Package demand reads observed and declared demand, by pool (region, GPU model or machine type,
// unit): hourly means ([Pools]), histories for forecasts ([Histories]), and changes announced by
// deployments ([Changes]).
package demand
