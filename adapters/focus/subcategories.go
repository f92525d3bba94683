package focus

import "slices"

// subcategories are the subcategories of services, by the category that each belongs to.
// Source: FinOps Open Cost and Usage Specification 1.1 to 1.4, ServiceSubcategory.
var subcategories = map[string][]string{
	"AI and Machine Learning": {
		"AI Platforms", "Bots", "Generative AI", "Machine Learning", "Natural Language Processing",
		"Other (AI and Machine Learning)",
	},
	"Analytics": {
		"Analytics Platforms", "Business Intelligence", "Data Processing", "Other (Analytics)", "Search",
		"Streaming Analytics",
	},
	"Business Applications": {
		"Other (Business Applications)", "Productivity and Collaboration",
	},
	"Compute": {
		"Containers", "End User Computing", "Other (Compute)", "Quantum Compute", "Serverless Compute",
		"Virtual Machines",
	},
	"Databases": {
		"Caching", "Data Warehouses", "Ledger Databases", "NoSQL Databases", "Other (Databases)",
		"Relational Databases", "Time Series Databases",
	},
	"Developer Tools": {
		"Continuous Integration and Deployment", "Developer Platforms", "Development Environments",
		"Other (Developer Tools)", "Quality Assurance", "Source Code Management",
	},
	"Identity": {
		"Identity and Access Management", "Other (Identity)",
	},
	"Integration": {
		"API Management", "Messaging", "Other (Integration)", "Workflow Orchestration",
	},
	"Internet of Things": {
		"IoT Analytics", "IoT Platforms", "Other (Internet of Things)",
	},
	"Management and Governance": {
		"Architecture", "Compliance", "Cost Management", "Data Governance", "Disaster Recovery",
		"Endpoint Management", "Observability", "Other (Management and Governance)", "Support",
	},
	"Media": {
		"Content Creation", "Gaming", "Media Streaming", "Mixed Reality", "Other (Media)",
	},
	"Migration": {
		"Data Migration", "Other (Migration)", "Resource Migration",
	},
	"Mobile": {
		"Other (Mobile)",
	},
	"Multicloud": {
		"Multicloud Integration", "Other (Multicloud)",
	},
	"Networking": {
		"Application Networking", "Content Delivery", "Network Connectivity", "Network Infrastructure",
		"Network Routing", "Network Security", "Other (Networking)",
	},
	"Other": {
		"Other (Other)",
	},
	"Security": {
		"Other (Security)", "Secret Management", "Security Posture Management", "Threat Detection and Response",
	},
	"Storage": {
		"Backup Storage", "Block Storage", "File Storage", "Object Storage", "Other (Storage)",
		"Storage Platforms",
	},
	"Web": {
		"Application Platforms", "Other (Web)",
	},
}

// isSubcategory reports whether a name is a subcategory of a category, or of any if that is "".
func isSubcategory(name, category string) bool {
	if category != "" {
		return slices.Contains(subcategories[category], name)
	}
	for _, names := range subcategories {
		if slices.Contains(names, name) {
			return true
		}
	}
	return false
}
