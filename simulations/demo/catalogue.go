package demo

// Source is the origin of something in this package.
type Source struct {
	What     string // what is based on it
	Citation string
	URL      string // "" if the citation suffices
}

// Catalogue lists the origin of everything here, in the order of the package comment.
func Catalogue() []Source {
	return []Source{
		{
			What: "Fleet: node shapes, GPU mix, shares of pod requests and constraints (generated from " +
				"published figures; G2 and G3 named by this package)",
			Citation: "Q. Weng, L. Yang, Y. Yu, W. Wang, X. Tang, G. Yang, L. Zhang: Beware of Fragmentation: " +
				"Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent. USENIX ATC 2023. Trace " +
				"openb, Apache-2.0",
			URL: "https://github.com/hkust-adsl/kubernetes-scheduler-simulator",
		},
		{
			What: "Load, Jobs: job sizes, run times, outcomes, hours and days of submission, range of " +
				"utilisation (generated from published figures)",
			Citation: "Q. Hu, P. Sun, S. Yan, Y. Wen, T. Zhang: Characterization and Prediction of Deep Learning " +
				"Workloads in Large-Scale GPU Datacenters. SC 2021, doi 10.1145/3458817.3476223. Trace Helios, " +
				"cluster Earth, MIT",
			URL: "https://github.com/S-Lab-System-Group/HeliosArtifact",
		},
		{
			What: "Load, Reports: SM activity and memory in use (generated from published medians of Acme and " +
				"PAI; spread invented)",
			Citation: "Q. Hu, Z. Ye, Z. Wang, G. Wang, M. Zhang, Q. Chen, P. Sun, D. Lin, X. Wang, Y. Luo, Y. " +
				"Wen, T. Zhang: Characterization of Large Language Model Development in the Datacenter. USENIX " +
				"NSDI 2024, arXiv 2403.07648",
			URL: "https://www.usenix.org/conference/nsdi24/presentation/hu",
		},
		{
			What:     "Serving: bounds of the histograms of times to the first token (everything else is invented)",
			Citation: "vLLM, metrics of its server",
			URL:      "https://docs.vllm.ai/en/latest/usage/metrics.html",
		},
		{
			What: "Planted: a node that fails again and again (that there are such nodes; how often is invented)",
			Citation: "A. Kokolis, M. Kuchnik, J. Hoffman, A. Kumar, P. Malani, F. Ma, Z. DeVito, S. Sengupta, K. Saladi, C.-J. Wu: " +
				"Revisiting Reliability in Large-Scale Machine Learning Research Clusters. HPCA 2025, arXiv 2410.21680",
			URL: "https://arxiv.org/abs/2410.21680",
		},
		{
			What:     "Planted: price of an owned DGX H100 (an estimate of May 2023; what its place and power cost is invented)",
			Citation: "SemiAnalysis, AI Server Cost Analysis, compiled by epoch-research/training-cost-trends",
			URL:      "https://github.com/epoch-research/training-cost-trends",
		},
		{
			What: "Demand: growth, daily and weekly profile, change of machine type, spread (generated from " +
				"published figures; CPU machines there, levels invented)",
			Citation: "M. Stokely, N. Nadgir, J. Peele, O. Kostakis: Shaved Ice: Optimal Compute Resource " +
				"Commitments for Dynamic Multi-Cloud Workloads. ICPE 2025, doi 10.1145/3676151.3719353. Data set " +
				"CC BY 4.0",
			URL: "https://github.com/Snowflake-Labs/shavedice-dataset",
		},
		{What: "Prices: AWS on demand and one year, 2026-01 (public list prices)", Citation: awsOnDemand.source,
			URL: "https://github.com/tsaol/aws-gpu"},
		{What: "Prices: AWS three years, all upfront, 2026-06 (public list prices)", Citation: awsThree.source,
			URL: "https://github.com/Netflix-Skunkworks/service-capacity-modeling"},
		{What: "Prices: AWS p3.16xlarge one year, published 2025-03 or before (public list price)",
			Citation: awsOlder.source, URL: "https://github.com/AjitTK/aws-emr-configuration"},
		{What: "Prices: other providers and spot, 2023 to 2025-03 (public list prices)", Citation: fsdl.source,
			URL: "https://github.com/the-full-stack/website"},
		{What: "Prices: CoreWeave, 2026-09 (public list prices)", Citation: coreweave.source,
			URL: "https://www.coreweave.com/pricing"},
		{What: "Prices: Lambda, 2026-09 (public list prices)", Citation: lambda.source, URL: "https://lambda.ai/instances"},
		{What: "Prices: Nebius H200, 2025-10 (public list prices)", Citation: nebiusDoc.source,
			URL: "https://docs.nebius.com/signup-billing/billing-changes-oct-2025"},
		{What: "Prices: Nebius H100, 2026-05 (public list prices)", Citation: nebius.source,
			URL: "https://www.opslyft.com/blog/nebius-vs-aws-gpu-cost-allocation"},
		{
			What: "Bill: columns and their meaning (everything in it is generated)",
			Citation: "FinOps Open Cost and Usage Specification (FOCUS) 1.4, Cost and Usage, Invoice Detail. " +
				"FinOps Foundation, CC BY 4.0",
			URL: "https://focus.finops.org",
		},
	}
}
