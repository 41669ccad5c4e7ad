output "service_account" {
  description = "The account of the jobs, and submit.dataproc-serverless.service_account."
  value       = google_service_account.job.email
}

output "password" {
  description = "source.password in pipeline.yml."
  value       = "gcp-secretmanager://${local.secret_id}"
}
