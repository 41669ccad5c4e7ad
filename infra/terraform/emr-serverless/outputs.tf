output "application_id" {
  description = "submit.emr-serverless.application_id"
  value       = aws_emrserverless_application.jobs.id
}

output "execution_role_arn" {
  description = "submit.emr-serverless.execution_role_arn"
  value       = aws_iam_role.job.arn
}

output "submit_policy_arn" {
  description = "The policy for whoever runs `lakeingest submit emr-serverless`."
  value       = aws_iam_policy.submit.arn
}

output "security_group_id" {
  description = "The group of the jobs, for the security group of the source to let in."
  value       = aws_security_group.jobs.id
}
