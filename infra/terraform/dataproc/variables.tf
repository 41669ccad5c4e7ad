variable "name" {
  description = "The name in pipeline.yml."
  type        = string
  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9_-]{0,40}$", var.name))
    error_message = "The name is that of pipeline.yml: letters, digits, - and _, at most 41 of them."
  }
}

variable "project" {
  description = "submit.dataproc.project"
  type        = string
}

variable "region" {
  description = "submit.dataproc.region"
  type        = string
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
  description = "The secret with the password of the source, as projects/company/secrets/mysql. Without it, the module makes an empty secret."
  type        = string
  default     = ""
  validation {
    condition     = can(regex("^(|projects/[^/]+/secrets/[^/]+)$", var.secret))
    error_message = "The secret is a name such as projects/company/secrets/mysql: the module takes no password."
  }
}

variable "subnetwork" {
  description = "The subnetwork of the clusters, whose machines have no external addresses. It needs Private Google Access, and a way to the source."
  type        = string
  default     = null
}

variable "image" {
  description = "The image of the clusters. It needs Spark 3.5 and Python 3.11."
  type        = string
  default     = "2.3-debian12"
}

variable "machine_type" {
  description = "The machines of a cluster."
  type        = string
  default     = "n2-standard-4"
}

variable "workers" {
  description = "How many workers a cluster has."
  type        = number
  default     = 2
}

# The job of the schedule. Its files are in the bucket once it was submitted, so it comes after the first apply.
variable "request" {
  description = "What `lakeingest submit dataproc --dry-run --json` prints. Without it, there is no schedule and no alert."
  type        = string
  default     = null
  validation {
    condition     = var.request == null || can(jsondecode(var.request).job.pyspark_job.main_python_file_uri)
    error_message = "The request is the JSON that `lakeingest submit dataproc --dry-run --json` prints."
  }
}

variable "max_minutes" {
  description = "After so many minutes Dataproc ends a workflow. The next one goes on from the last commit."
  type        = number
  default     = 120
}

variable "schedule" {
  description = "When jobs start, as cron writes it, in UTC. A run beside a running one ends with exit code 75."
  type        = string
  default     = "0 * * * *"
}

variable "quiet_minutes" {
  description = "People are told after so many minutes without a new job. More than the interval of the schedule."
  type        = number
  default     = 120
  validation {
    condition     = var.quiet_minutes >= 2 && var.quiet_minutes <= 1410 && floor(var.quiet_minutes) == var.quiet_minutes
    error_message = "Whole minutes, from 2 to 1410: Google allows 23 h 30 min at most."
  }
}

variable "email" {
  description = "Who is told."
  type        = string
  default     = null
}
