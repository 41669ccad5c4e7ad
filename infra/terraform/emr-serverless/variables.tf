variable "name" {
  description = "The name in pipeline.yml."
  type        = string
  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9_-]{0,40}$", var.name))
    error_message = "The name is that of pipeline.yml: letters, digits, - and _, at most 41 of them."
  }
}

variable "bucket" {
  description = "The bucket of tables, state and files of jobs."
  type        = string
}

variable "make_bucket" {
  description = "Whether the module makes the bucket. It cannot be destroyed with the module."
  type        = bool
  default     = false
}

variable "secret" {
  description = "The ARN of the secret with the password of the source. Without it, the module makes an empty secret."
  type        = string
  default     = ""
  validation {
    condition     = can(regex("^(|arn:[a-z-]+:secretsmanager:.+)$", var.secret))
    error_message = "The secret is an ARN of Secrets Manager: the module takes no password."
  }
}

variable "glue_databases" {
  description = "The Glue databases that tables are copied into, such as shop or shop_*."
  type        = string
  validation {
    condition     = can(regex("^[^*].*$", var.glue_databases))
    error_message = "The pattern of the databases may not begin with a star."
  }
}

variable "vpc" {
  description = "The network from which the source is reached. It needs a way to S3, Glue and Secrets Manager, such as VPC endpoints."
  type        = string
}

variable "subnets" {
  description = "The subnets of the network in which jobs run."
  type        = list(string)
}

variable "release" {
  description = "The release of EMR."
  type        = string
  default     = "emr-7.13.0"
}

variable "maximum_cpu" {
  description = "How many processors all jobs may have together."
  type        = string
  default     = "32 vCPU"
}

variable "maximum_memory" {
  description = "How much memory all jobs may have together."
  type        = string
  default     = "256 GB"
}

# The job of the schedule. It has the ids of the application and the role, so it comes after the first apply.
variable "request" {
  description = "What `lakeingest submit emr-serverless --dry-run --json` prints. Without it, there is no schedule and no alarm."
  type        = string
  default     = null
  validation {
    condition     = var.request == null || can(jsondecode(var.request).jobDriver.sparkSubmit.entryPoint)
    error_message = "The request is the JSON that `lakeingest submit emr-serverless --dry-run --json` prints."
  }
}

variable "max_minutes" {
  description = "After so many minutes EMR ends a job, if pipeline.yml has no max_minutes. The next one goes on from the last commit."
  type        = number
  default     = 120
}

variable "schedule" {
  description = "When jobs start, as EventBridge Scheduler writes it. A job beside a running one ends with exit code 75."
  type        = string
  default     = "rate(1 hour)"
}

variable "quiet_hours" {
  description = "People are told after so many hours without a job that has ended well."
  type        = number
  default     = 26
  validation {
    condition     = var.quiet_hours >= 1 && var.quiet_hours <= 168 && floor(var.quiet_hours) == var.quiet_hours
    error_message = "Whole hours, from 1 to 168: an alarm of CloudWatch looks back at most a week."
  }
}

variable "email" {
  description = "Who is told. They have to confirm that once."
  type        = string
  default     = null
}
